"""What is put around the words of the user before an agent gets them."""

from __future__ import annotations

# As it stands this is no valid result, so an agent that only repeats it has said nothing.
_BLOCK = """\
When you are finished or cannot go on, end your last message with this block, filled in:

```shunter-result
{"status": "done | needs_input | blocked", "summary": "what you did and found", "questions": [], "files_changed": []}
```

`done`: the task is finished. `needs_input`: you need an answer from a person; each question is
{"text": "…", "options": ["…"]}, without options when any answer will do. `blocked`: you cannot go on and no answer
would help."""


def ask_for_result(text: str) -> str:
    """For an agent without an option for a schema: the prompt, and how its last message must end."""
    return f"{text.rstrip()}\n\n{_BLOCK}\n"


def hide_command(text: str) -> str:
    """For a CLI that takes a prompt beginning with `/` for a command of its own and never shows it to the model."""
    return f"The task:\n\n{text}" if text.lstrip().startswith("/") else text
