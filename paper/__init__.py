"""The paper, table by table."""
