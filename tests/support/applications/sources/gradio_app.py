"""A form made with Gradio: `gradio_app.py PORT`."""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import sys

import gradio as gr

with gr.Blocks() as demo:
    name = gr.Textbox(label="Name")
    item = gr.Dropdown([f"Item {i}" for i in range(40)], label="Pick")
    loud = gr.Checkbox(label="Loud")
    said = gr.Textbox(label="Said")
    button = gr.Button("Greet")
    button.click(lambda n, i, x: f"Hello {n} with {i}{'!' if x else ''}", [name, item, loud], said)
demo.launch(server_name="127.0.0.1", server_port=int(sys.argv[1]), quiet=True)
