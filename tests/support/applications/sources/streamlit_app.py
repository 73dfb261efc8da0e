"""A page made with Streamlit."""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import streamlit as st

st.title("Orders")
name = st.text_input("Name")
size = st.selectbox("Size", ["small", "medium", "large"])
count = st.number_input("Count", 1, 20, 1)
gift = st.checkbox("As a gift")
if st.button("Order"):
    st.success(f"{count} {size} for {name}{' as a gift' if gift else ''}")
