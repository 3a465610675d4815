"""Predictors trained on frozen representations."""
