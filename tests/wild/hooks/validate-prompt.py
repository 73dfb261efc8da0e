#!/usr/bin/env python3
"""Blocks prompts with a password, and adds the time to the others."""

import json
import re
import sys

prompt = json.load(sys.stdin).get("prompt", "")
if re.search(r"(?i)\b(password|secret|token)\s*[:=]", prompt):
    sys.stdout.write(json.dumps({"decision": "block", "reason": "The prompt holds a secret."}))
    sys.exit(0)
sys.stdout.write("Current time: noon")
