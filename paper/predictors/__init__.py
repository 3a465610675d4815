"""The paper's predictors on raw features or embeddings, the seeds of one trained as one model."""
