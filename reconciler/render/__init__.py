"""What a plan looks like to people and programs: text, JSON, Markdown and diffs. Nothing here decides anything."""
