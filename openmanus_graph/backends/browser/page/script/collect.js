// What Python asks for: the walk's findings as JSON.
function collect(limits) {
  const gone = forgetDetached();
  const walk = new PageWalk(limits);
  const body = document.querySelector('body, frameset');
  if (body) walk.all(body);
  const scroller = document.scrollingElement || document.documentElement;
  return JSON.stringify({
    url: location.href,
    title: document.title,
    document: documentId,
    items: walk.items,
    rest: walk.rest,
    gone,
    covered: walk.covered,
    messages: passingMessages(),
    top: Math.round(scroller?.scrollTop || 0),
    height: scroller?.scrollHeight || 0,
    view: [innerWidth, innerHeight],
    ready: document.readyState,
  });
}
