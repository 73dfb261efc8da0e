// What Python asks for: the walk's findings as JSON.
function collect(limits) {
  walkLabels = labelsByControl();
  walkEditors = editorFields();
  try {
    return JSON.stringify(findings(limits));
  } finally {
    walkLabels = walkEditors = null;
  }
}

function findings(limits) {
  const gone = forgetDetached();
  // A drawing or a feed is a document without a body.
  const whole = document.contentType === 'text/html' ? null : document.documentElement;
  const body = document.querySelector('body, frameset') || whole;
  const walked = (from) => {
    const walk = new PageWalk({ ...limits, from });
    if (body) walk.all(body);
    return walk;
  };
  let walk = walked(-Infinity);
  // Of a very large page, the part in the window is walked, not its beginning.
  if (walk.rest && scrollY > innerHeight) walk = walked(-innerHeight);
  const scroller = document.scrollingElement || document.documentElement;
  return {
    url: location.href,
    title: document.title,
    document: documentId,
    items: walk.items,
    rest: walk.rest,
    above: walk.above,
    gone,
    covered: walk.covered,
    coveredText: walk.coveredText,
    messages: passingMessages(),
    top: Math.round(scroller?.scrollTop || 0),
    height: scroller?.scrollHeight || 0,
    view: [innerWidth, innerHeight],
    ready: document.readyState,
  };
}
