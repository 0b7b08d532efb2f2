"""What a run would take, and what limited one."""
