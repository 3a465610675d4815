"""Result rows as tables and figures: pages and documents."""
