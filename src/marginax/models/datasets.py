"""The two bundled data sets, preprocessed and split exactly as in the M-SVGD-EM paper."""

from importlib.resources import files
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from marginax.models.logistic_regression import ClassificationData

__all__ = ["Split", "mnist_4_vs_9", "wisconsin"]


class Split(NamedTuple):
    """A data set in two parts.

    Attributes:
        train: what the model is fitted to.
        test: what it has not seen.
    """

    train: ClassificationData
    test: ClassificationData


def wisconsin(random_state: int | None = 45) -> Split:
    """Breast Cancer Wisconsin (Original): 683 complete rows, 9 features, label 1 for malignant.

    Every feature is standardised over all rows (population standard deviation), then 80 % of the
    rows are drawn for training: the same rows as scikit-learn's `train_test_split(test_size=0.2,
    random_state=...)`.

    Args:
        random_state: seed of the split; None puts all rows into the training part.

    Returns:
        Features and integer labels, in the default float type.
    """
    with (
        files("marginax.models")
        .joinpath("data/breast_cancer_wisconsin_original.csv")
        .open() as file
    ):
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    features, labels = table[:, :-1], table[:, -1]
    return _split(_standardise(features), labels, random_state)


def mnist_4_vs_9(random_state: int | None = 0) -> Split:
    """1000 MNIST images of the digits 4 (label 0) and 9 (label 1), as vectors of 784 pixels.

    Every pixel that is not constant is standardised over the 1000 images; constant ones are 0. The
    split is as in `wisconsin`.

    Args:
        random_state: seed of the split; None puts all images into the training part.

    Returns:
        Features and integer labels, in the default float type.
    """
    with files("marginax.models").joinpath("data/mnist_4_vs_9.npz").open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        images, labels = archive["images"], archive["labels"]
    return _split(_standardise(images.reshape(len(images), -1)), labels, random_state)


def _standardise(features: np.ndarray) -> np.ndarray:
    features = features.astype(np.float64)
    sd = features.std(axis=0)
    return (features - features.mean(axis=0)) / np.where(sd > 0, sd, 1)


def _split(features: np.ndarray, labels: np.ndarray, random_state: int | None) -> Split:
    n = len(labels)
    # scikit-learn's recipe: a permutation by the legacy generator, the first ceil(n/5) rows for
    # testing. NumPy promises that this generator never changes, and it is what makes the rows the
    # paper's rows.
    if random_state is None:
        order, num_test = np.arange(n), 0
    else:
        order, num_test = np.random.RandomState(random_state).permutation(n), -(-n // 5)  # noqa: NPY002

    def part(rows: np.ndarray) -> ClassificationData:
        return ClassificationData(
            jnp.asarray(features[rows]), jnp.asarray(labels[rows].astype(int))
        )

    return Split(train=part(order[num_test:]), test=part(order[:num_test]))
