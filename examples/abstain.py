"""
Let a classifier abstain
========================

How much better is a classifier if it may say "I do not know" on 30 % of the rows, and what is
guaranteed? The threshold comes from calibration rows and has a finite-sample guarantee.
"""

# %%
# A noisy variant of the breast cancer table, so that there is something to abstain from.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varjepa import Architecture, RiskCoverageDisplay, SelectiveClassifier, Training, VarTJEPA

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X.filter(like="mean")  # ten of thirty columns
X = X + X.std().to_numpy() * np.random.default_rng(0).normal(size=X.shape)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
classifier = make_pipeline(StandardScaler(), LogisticRegression())

# %%
# Rows are ranked by the classifier's own confidence. ``abstain_by=VarTJEPA()`` adds the scores of
# our model where rows that do not calibrate say that this helps. Here it is a small model, trained
# for 200 steps.
small = Architecture(d=32, ff=64, predictor_width=32, predictor_ff=64)
short = Training(max_steps=200, learning_rate=3e-3)
latent = VarTJEPA(small, training=short, random_state=0)
by_confidence = SelectiveClassifier(classifier, coverage=0.7, random_state=0)
with_latent = SelectiveClassifier(classifier, coverage=0.7, abstain_by=latent, random_state=0)
for selective in (by_confidence, with_latent):
    selective.fit(X_train, y_train)
    is_right = selective.predict(X_test) == y_test
    answered = selective.accepts(X_test)
    print(selective.guarantee_)
    print(f"right {is_right.mean():.3f}; where it answers {is_right[answered].mean():.3f}")
assert with_latent.combined_ is not None
print("what ranks the rows:", with_latent.combined_.chosen)

# %%
# Error rate against the share of rows that are answered. The dot is the calibrated threshold.
figure, ax = plt.subplots(figsize=(6.5, 3.2))
RiskCoverageDisplay.from_estimator(by_confidence, X_test, y_test, name="confidence", ax=ax)
figure.tight_layout()
