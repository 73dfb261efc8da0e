import { javascript } from '@codemirror/lang-javascript';
import { EditorView, basicSetup } from 'codemirror';

globalThis.editor = new EditorView({
  doc: Array.from({ length: 200 }, (_, i) => `// line ${i}`).join('\n'),
  extensions: [basicSetup, javascript(), EditorView.theme({ '&': { height: '300px' } })],
  parent: document.body,
});
