#!/bin/sh
echo "// formatted" >> "$1"
