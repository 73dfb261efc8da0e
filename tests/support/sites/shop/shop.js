'use strict';
const PER_PAGE = 12;
const state = { articles: [], query: '', sort: 'name', kind: '', page: 1, cart: {} };
const main = document.getElementById('main');
const $ = (id) => document.getElementById(id);
const make = (tag, facts = {}, ...children) => {
  const el = Object.assign(document.createElement(tag), facts);
  el.append(...children);
  return el;
};
const money = (cents) => (cents / 100).toFixed(2) + ' €';

function shown() {
  const orders = { name: (a, b) => a.name.localeCompare(b.name), cheap: (a, b) => a.cents - b.cents,
    dear: (a, b) => b.cents - a.cents, stars: (a, b) => b.stars - a.stars || a.cents - b.cents };
  return state.articles.filter((one) => (!state.kind || one.kind === state.kind) &&
    one.name.toLowerCase().includes(state.query.toLowerCase())).sort(orders[state.sort]);
}

function toast(text) {
  $('toast').textContent = text;
  setTimeout(() => { $('toast').textContent = ''; }, 3000);
}

function add(article) {
  state.cart[article.id] = (state.cart[article.id] || 0) + 1;
  $('count').textContent = Object.values(state.cart).reduce((sum, n) => sum + n, 0);
  toast(`${article.name} is in the cart`);
}

function card(article) {
  const title = make('h3', { textContent: article.name });
  title.addEventListener('click', () => detail(article));
  const price = make('p', {}, money(article.cents), ` · ${article.stars} of 5 stars`);
  const button = make('button', { textContent: article.stock ? 'Add to cart' : 'Sold out', disabled: !article.stock });
  button.addEventListener('click', () => add(article));
  return make('div', { className: 'card' }, title, price, button);
}

function list() {
  const all = shown(), pages = Math.max(1, Math.ceil(all.length / PER_PAGE));
  state.page = Math.min(state.page, pages);
  const grid = make('div', { id: 'articles' }, ...all.slice((state.page - 1) * PER_PAGE, state.page * PER_PAGE).map(card));
  const steps = make('nav', {}, `Page ${state.page} of ${pages} `);
  const step = (text, by) => {
    const button = make('span', { textContent: text, className: 'step', style: 'cursor:pointer; padding:0 8px' });
    button.addEventListener('click', () => { state.page = Math.min(pages, Math.max(1, state.page + by)); list(); scrollTo(0, 0); });
    return button;
  };
  if (state.page > 1) steps.append(step('‹', -1));
  if (state.page < pages) steps.append(step('›', 1));
  main.replaceChildren(make('p', { textContent: `${all.length} articles` }), grid, steps);
}

function detail(article) {
  const back = make('button', { textContent: 'Back to the list' });
  back.addEventListener('click', list);
  const button = make('button', { textContent: 'Add to cart', disabled: !article.stock });
  button.addEventListener('click', () => add(article));
  main.replaceChildren(make('h1', { textContent: article.name }), make('p', { textContent: article.text }),
    make('p', { textContent: `${money(article.cents)}, ${article.stock} in stock` }), button, back);
}

function cart() {
  const rows = Object.entries(state.cart).map(([id, count]) => {
    const article = state.articles.find((one) => one.id === +id);
    const remove = make('span', { className: 'remove', textContent: '×', style: 'cursor:pointer' });
    remove.onclick = () => { delete state.cart[id]; cart(); };
    return make('tr', {}, make('td', { textContent: article.name }), make('td', { textContent: `${count} ×` }),
      make('td', { textContent: money(article.cents * count) }), make('td', {}, remove));
  });
  const checkout = make('button', { textContent: 'Check out', disabled: !rows.length });
  checkout.onclick = form;
  main.replaceChildren(make('h1', { textContent: 'Cart' }), make('table', {}, ...rows), checkout);
}

function form() {
  main.innerHTML = `<h1>Check out</h1><form><label>Name <input name="name" required></label><label>Street <input name="street" required></label>
    <label>City <input name="city" required></label><label>Delivery <select name="delivery"><option value="post">Post</option><option value="courier">Courier</option><option value="pickup">Pick up</option></select></label>
    <label><input type="checkbox" name="terms" required> I accept the terms</label><button>Order now</button></form>`;
  main.querySelector('form').onsubmit = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    const answer = await fetch('api/orders', { method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...given, cart: state.cart }) });
    const order = await answer.json();
    main.replaceChildren(make('h1', { textContent: 'Thank you' }), make('p', { textContent: `Your order has number ${order.number}.` }));
    state.cart = {};
    $('count').textContent = '0';
  };
}

async function start() {
  main.append(make('div', { className: 'skeleton' }));
  state.articles = await (await fetch('api/articles')).json();
  for (const kind of ['', ...new Set(state.articles.map((one) => one.kind))]) {
    const button = make('button', { textContent: kind || 'All' });
    button.onclick = () => { state.kind = kind; state.page = 1; list(); };
    $('kinds').append(button);
  }
  list();
}

$('query').addEventListener('input', () => {
  clearTimeout(state.timer);
  state.timer = setTimeout(() => { state.query = $('query').value; state.page = 1; list(); }, 200);
});
$('sort').onchange = () => { state.sort = $('sort').value; list(); };
$('cart').addEventListener('click', cart);
start();
