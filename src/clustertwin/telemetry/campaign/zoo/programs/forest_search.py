"""scikit-learn: a cross-validated search over random forests, on random classification data."""

from __future__ import annotations


def main() -> None:
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(4000, 30, n_informative=12, random_state=1)
    grid = {"max_depth": [4, 8, None], "max_features": [4, 8]}
    GridSearchCV(RandomForestClassifier(60, random_state=1, n_jobs=1), grid, cv=3).fit(x, y)


if __name__ == "__main__":
    main()
