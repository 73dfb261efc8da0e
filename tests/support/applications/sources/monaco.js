import * as monaco from 'monaco-editor';

self.MonacoEnvironment = { getWorker: () => new Worker(URL.createObjectURL(new Blob(['']))) };
const place = document.body.appendChild(document.createElement('div'));
place.style.height = '400px';
globalThis.editor = monaco.editor.create(place, {
  value: Array.from({ length: 300 }, (_, i) => `// line ${i}`).join('\n'),
  language: 'javascript',
});
