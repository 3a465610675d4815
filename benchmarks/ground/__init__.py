"""The proving ground: an estimator with its defaults beside peers, on many tables."""
