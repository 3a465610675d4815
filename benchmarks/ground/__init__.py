"""The proving ground: an estimator with its defaults compared with peers, on many tables."""
