import { exampleSetup } from 'prosemirror-example-setup';
import { DOMParser } from 'prosemirror-model';
import { schema } from 'prosemirror-schema-basic';
import { EditorState } from 'prosemirror-state';
import { EditorView } from 'prosemirror-view';
import 'prosemirror-menu/style/menu.css';
import 'prosemirror-view/style/prosemirror.css';

const text = document.createElement('div');
text.innerHTML = '<p>A first text.</p>';
globalThis.view = new EditorView(document.body, {
  state: EditorState.create({
    doc: DOMParser.fromSchema(schema).parse(text),
    plugins: exampleSetup({ schema }),
  }),
});
