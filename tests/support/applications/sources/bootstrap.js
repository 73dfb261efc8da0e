import * as bootstrap from 'bootstrap';
import 'bootstrap/dist/css/bootstrap.min.css';

document.body.insertAdjacentHTML('beforeend', `
  <nav class="navbar bg-light"><div class="container-fluid"><a class="navbar-brand" href="#">Shop</a>
    <button class="navbar-toggler" data-bs-toggle="collapse" data-bs-target="#menu"><span class="navbar-toggler-icon"></span></button>
    <div class="collapse navbar-collapse" id="menu"><ul class="navbar-nav">
      <li class="nav-item dropdown"><a class="nav-link dropdown-toggle" href="#" data-bs-toggle="dropdown">Articles</a>
        <ul class="dropdown-menu"><li><a class="dropdown-item" href="#mugs">Mugs</a></li><li><a class="dropdown-item" href="#lamps">Lamps</a></li></ul>
      </li></ul></div></div></nav>
  <ul class="nav nav-tabs mt-3"><li class="nav-item"><button class="nav-link active" data-bs-toggle="tab" data-bs-target="#one">About</button></li>
    <li class="nav-item"><button class="nav-link" data-bs-toggle="tab" data-bs-target="#two">Prices</button></li></ul>
  <div class="tab-content"><div class="tab-pane fade show active" id="one">About us</div>
    <div class="tab-pane fade" id="two">A mug costs 7.20. <button class="btn btn-primary" data-bs-toggle="modal" data-bs-target="#ask">Order</button></div></div>
  <div class="modal fade" id="ask" tabindex="-1"><div class="modal-dialog"><div class="modal-content">
    <div class="modal-header"><h5 class="modal-title">Order a mug?</h5><button class="btn-close" data-bs-dismiss="modal"></button></div>
    <div class="modal-body"><div class="form-check form-switch"><input class="form-check-input" type="checkbox" id="gift"><label class="form-check-label" for="gift">As a gift</label></div></div>
    <div class="modal-footer"><button class="btn btn-primary" id="yes" data-bs-dismiss="modal">Order it</button></div></div></div></div>
  <div class="toast-container position-fixed bottom-0 end-0"><div class="toast" id="done"><div class="toast-body">Ordered.</div></div></div>`);
document.querySelector('#yes').addEventListener('click', () => {
  globalThis.ordered = { gift: document.querySelector('#gift').checked };
  new bootstrap.Toast('#done', { delay: 400 }).show();
});
