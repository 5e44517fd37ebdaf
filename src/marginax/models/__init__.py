"""Models with known answers and the paper's data sets, for tests, examples and benchmarks."""

from marginax.models.bayesian_network import BayesianNetwork, NetworkTheta, NetworkWeights
from marginax.models.datasets import Split, mnist_4_vs_9, wisconsin
from marginax.models.densities import error_rate, log_predictive_density
from marginax.models.double_well import DoubleWell, DoubleWellTheta
from marginax.models.logistic_regression import ClassificationData, LogisticRegression
from marginax.models.probabilistic_pca import ProbabilisticPCA, ProbabilisticPCATheta
from marginax.models.random_intercept import RandomIntercept, RandomInterceptTheta
from marginax.models.toy_hierarchical import ToyHierarchical

__all__ = [
    "BayesianNetwork",
    "ClassificationData",
    "DoubleWell",
    "DoubleWellTheta",
    "LogisticRegression",
    "NetworkTheta",
    "NetworkWeights",
    "ProbabilisticPCA",
    "ProbabilisticPCATheta",
    "RandomIntercept",
    "RandomInterceptTheta",
    "Split",
    "ToyHierarchical",
    "error_rate",
    "log_predictive_density",
    "mnist_4_vs_9",
    "wisconsin",
]
