"""Gradient boosting as a yardstick: what a learner that sees half of a log at once makes of the other half."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.history.bounds import LEVELS
from headway.history.factors import check_learner
from headway.history.trial import PredictedJob
from headway.model.instant import SECOND

Floats = NDArray[np.float64]

DAY_SECONDS = 24 * 3600


def boosted(asked: Sequence[PredictedJob], since: int) -> list[tuple[float, ...]]:
    """Bounds on the run times of the jobs from a place on, by gradient boosting on those before it.

    It knows of a job its user, estimate, width, hour and day of the week, and the mean of its user's last two jobs.

    Returns:
        One for each of `LEVELS`, rising, in seconds, for each job.

    Raises:
        HeadwayError: scikit-learn is not installed.
    """
    check_learner()
    from sklearn.ensemble import HistGradientBoostingRegressor

    users = {name: number for number, name in enumerate(dict.fromkeys(one.job.user for one in asked))}
    known: Floats = np.array(
        [
            (
                users[one.job.user] % 255,  # as a category there may be so many
                np.log1p(one.user),
                one.job.width,
                one.job.release / SECOND % DAY_SECONDS // 3600,
                one.job.release / SECOND // DAY_SECONDS % 7,
                np.log1p(one.last_two),
            )
            for one in asked
        ]
    )
    took: Floats = np.log1p(np.array([one.took for one in asked]))
    told = []
    for level in LEVELS:
        learner = HistGradientBoostingRegressor(
            loss="quantile", quantile=level, categorical_features=[0], random_state=0
        )
        learner.fit(known[:since], took[:since])
        told.append(np.expm1(learner.predict(known[since:])))
    most = np.array([np.inf if one.job.estimate is None else one.user for one in asked[since:]])
    bounds = np.minimum(np.maximum.accumulate(np.maximum(np.stack(told, axis=1), 0.0), axis=1), most[:, None])
    return [tuple(row) for row in bounds.tolist()]
