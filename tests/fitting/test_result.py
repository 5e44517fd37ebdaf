"""What a `Fit` can do after the numbers: draws, predictions, files, figures, ArviZ."""

import copy
import dataclasses
import io
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import marginax as mx
from marginax.fitting import plotting
from marginax.fitting.plan import make_plan
from marginax.interop.drawing import figure_of, parts_of
from marginax.model import parameter_table
from marginax.model.transforms import correlation_cholesky, positive

pytestmark = pytest.mark.usefixtures("as_users_write")
GROUPS, N = 15, 4


def problem(seed=0, **more):
    """y_gi ~ Poisson(x_g), x_g > 0 log-normal: a constrained latent."""
    random = np.random.default_rng(seed)
    y = random.poisson(np.exp(1 + 0.7 * random.normal(size=(GROUPS, 1))) * np.ones((GROUPS, N)))

    def log_joint(theta, x, y):
        prior = norm.logpdf(jnp.log(x), theta["m"], theta["s"]) - jnp.log(x)
        return prior + jnp.sum(y * jnp.log(x) - x)

    return mx.Problem.grouped(
        log_joint,
        y.astype(float),
        theta={"m": 0.0, "s": 1.0},
        latent=1.0,
        theta_transforms={"s": positive},
        latent_transforms=positive,
        **more,
    )


@pytest.fixture(scope="module")
def fitted():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return mx.fit(problem(), key=jax.random.key(0), num_starts=2)


@pytest.mark.slow
def test_the_posterior_is_on_the_constrained_scale(fitted):
    assert fitted.ok, fitted
    draws = np.asarray(fitted.posterior)
    assert draws.shape == (20, 250, GROUPS)
    assert np.all(draws > 0)
    summary = fitted.random_effects()
    np.testing.assert_allclose(summary.mean, draws.mean(axis=(0, 1)))
    assert np.all((summary.low < summary.mean) & (summary.mean < summary.high))
    # On the log scale the draws must have the quadrature's moments.
    logs = np.log(draws).reshape(-1, GROUPS)
    away = (logs.mean(axis=0) - fitted.likelihood.mean.ravel()) / fitted.likelihood.sd.ravel()
    assert np.max(np.abs(away)) < 4.5 / np.sqrt(fitted.draws.effective_draws)


@pytest.mark.slow
def test_predictions_follow_the_draws(fitted, key):
    def counts(key, theta, x):
        return jax.random.poisson(key, x[:, None], (GROUPS, N))

    predicted = fitted.predict(counts, key=key, num_draws=2000)
    assert predicted.shape == (2000, GROUPS, N)
    expected = np.asarray(fitted.posterior).mean(axis=(0, 1))
    np.testing.assert_allclose(predicted.mean(axis=(0, 2)), expected, rtol=0.1)


def test_simulated_data_go_back_into_the_problem(fitted, key):
    def new(key, theta):
        latent_key, data_key = jax.random.split(key)
        x = jnp.exp(theta["m"] + theta["s"] * jax.random.normal(latent_key, (GROUPS, 1)))
        return jax.random.poisson(data_key, x * jnp.ones((1, N))).astype(float)

    data = fitted.simulate(new, key=key, num=3)
    assert data.shape == (3, GROUPS, N)
    again = fitted.problem.with_data(data[0])
    assert again.num_groups == GROUPS
    latent = jnp.ones(GROUPS)
    expected = fitted.problem.log_joint(fitted.theta, latent, data[0])
    np.testing.assert_allclose(again.log_joint(fitted.theta, latent, again.data), expected)


@pytest.mark.slow
def test_save_and_load(fitted, tmp_path):
    path = tmp_path / "fit.npz"
    fitted.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["fit.npz"]
    again = mx.Fit.load(path, problem())
    assert str(again) == str(fitted)
    np.testing.assert_array_equal(again.covariance, fitted.covariance)
    np.testing.assert_array_equal(again.posterior, fitted.posterior)
    for mine, theirs in zip(
        jax.tree.leaves((again.run.theta, again.run.particles, again.run.history)),
        jax.tree.leaves((fitted.run.theta, fitted.run.particles, fitted.run.history)),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)
    assert again.run.cloud_checks == fitted.run.cloud_checks
    apart = replace(fitted, run=replace(fitted.run, starts_agree=False))
    apart.save(path)
    assert not mx.Fit.load(path, problem()).run.starts_agree
    # The likelihood function is not in the file, and found anew from the problem.
    assert again.maximum is None
    np.testing.assert_allclose(again.profile_interval("m"), fitted.profile_interval("m"), rtol=1e-3)
    with pytest.raises(ValueError, match="another problem"):
        mx.Fit.load(path, problem(seed=1))


def test_a_dataframe_has_names_and_ratios(fitted):
    plain, ratios = fitted.table(), fitted.table(exp=True)
    assert list(plain["parameter"]) == list(fitted.names)
    np.testing.assert_allclose(plain["estimate"], fitted.estimates)
    np.testing.assert_allclose(plain["z"], fitted.estimates / fitted.standard_errors)
    np.testing.assert_allclose(plain[["low", "high"]], fitted.confidence_intervals())
    # The mean may be a log odds; the standard deviation is one whatever the link.
    assert ratios["estimate"][0] == pytest.approx(np.exp(plain["estimate"][0]))
    assert ratios["high"][0] == pytest.approx(np.exp(plain["high"][0]))
    assert ratios["estimate"][1] == plain["estimate"][1]
    assert ratios["p"][0] == plain["p"][0]


def test_predictions_may_draw_theta(fitted, key):
    def theta_of(key, theta, x):
        return jnp.stack([theta["m"], jnp.log(theta["s"])])

    fixed = fitted.predict(theta_of, key=key, num_draws=500)
    assert np.ptp(np.asarray(fixed), axis=0).max() < 1e-6
    drawn = np.asarray(fitted.predict(theta_of, key=key, num_draws=500, theta="draw"))
    # 500 draws: means within 5 standard errors, covariances within 30 %
    covariance = fitted.unconstrained_covariance
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_array_less(
        np.abs(drawn.mean(axis=0) - fitted.unconstrained_theta), 5 * sd / np.sqrt(500)
    )
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.3)
    with pytest.raises(ValueError, match='must be "estimate" or "draw"'):
        fitted.predict(theta_of, key=key, theta="drawn")


def test_labels_of_groups_are_shown(fitted):
    assert fitted.random_effects().labels is None
    labels = np.array([f"site {i}" for i in range(GROUPS)])
    labelled = replace(fitted, problem=replace(fitted.problem, group_labels=labels))
    assert labelled.random_effects().labels.tolist() == labels.tolist()
    pytest.importorskip("matplotlib")
    (ax,) = labelled.plot_random_effects().axes
    words = [text.get_text() for text in ax.get_yticklabels()]
    order = np.argsort(np.asarray(labelled.random_effects().mean))
    assert words == labels[order].tolist()


def test_names_can_be_given_later(fitted):
    named = fitted.problem.with_names({"m": "mean"})
    assert replace(fitted, problem=named).names == ("mean", "s")
    with pytest.raises(ValueError, match="which theta does not have"):
        fitted.problem.with_names({"mu": "mean"})


def test_files_that_are_no_fit_are_refused(fitted, tmp_path):
    path = tmp_path / "fit.npz"
    fitted.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        mx.Fit.load(path, fitted.problem)
    with pytest.raises(FileNotFoundError):
        mx.Fit.load(tmp_path / "nothing.npz", fitted.problem)


@pytest.mark.slow
def test_the_figure_has_its_panels(fitted, key):
    pytest.importorskip("matplotlib")
    alone = ["Estimates", "Random effects: latent", "Paths of θ from 1 start"]
    figure = fitted.plot()
    assert [title for title, _ in parts_of(figure)] == alone
    assert any("Particles: Stein ratio" in words for words in texts(figure))
    data = fitted.problem.data

    def new(key, theta, x):
        return jax.random.poisson(key, x[:, None] + 0 * data)

    predicted = fitted.predict(new, key=key, num_draws=50)
    figure = fitted.plot(predicted, data)
    titles = [title for title, _ in parts_of(figure)]
    assert titles == ["Estimates", "Predictions", "Residuals", *alone[1:]]
    figure.savefig(io.BytesIO())


def texts(figure):
    """Every word of a figure."""
    figure.canvas.draw()
    found = figure.findobj(lambda one: hasattr(one, "get_text"))
    return [str(one.get_text()) for one in found if isinstance(one.get_text(), str)]


def test_stein_ratios_are_drawn_only_where_something_is_wrong(fitted, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(plotting, "_stein_ratios", lambda fit: np.array([0.4, 1.0]))
    figure = fitted.plot()
    assert parts_of(figure)[-1][0] == "Stein ratio of the particles: 0.40 to 1.00"
    assert not any("Particles:" in words for words in texts(figure))


def test_paths_are_in_units_of_the_parameters_with_ticks_one_can_read(fitted):
    # They were in standard errors on a symlog axis, with ticks such as 7.42248×10⁻¹.
    pytest.importorskip("matplotlib")
    figure = figure_of([plotting._paths(fitted, "")])
    figure.canvas.draw()
    for ax, x, error in zip(figure.axes, fitted.estimates, fitted.standard_errors, strict=True):
        low, high = ax.get_ylim()
        assert low < x - error < x + error < high
        words = [one.get_text() for one in ax.get_yticklabels()]
        assert words
        assert all(len(word) <= 6 and "×" not in word for word in words)


def test_estimates_are_drawn_as_ratios_if_asked(fitted):
    pytest.importorskip("matplotlib")
    (both,) = fitted.plot_estimates().axes
    assert both.get_xscale() == "linear"
    ratio, sd = fitted.plot_estimates(exp=True).axes
    assert (ratio.get_xscale(), sd.get_xscale()) == ("log", "linear")
    low, high = np.exp(fitted.confidence_intervals()[0])
    assert ratio.get_xlim()[0] < low < high < ratio.get_xlim()[1]
    (one,) = fitted.plot_estimates(["s"]).axes
    assert [text.get_text() for text in one.get_yticklabels()] == ["s"]
    with pytest.raises(ValueError, match="There is no parameter 'sd'; there are m, s"):
        fitted.plot_estimates(["sd"])


def test_predictions_know_the_columns_of_the_data_and_their_mask(fitted):
    pytest.importorskip("matplotlib")
    mask = np.ones((GROUPS, N))
    mask[0, 1:] = 0.0
    y = np.where(mask > 0, np.asarray(fitted.problem.data), 900.0)
    data = {"y": y, "mask": mask, "time": np.tile(np.arange(N, dtype=float), (GROUPS, 1))}
    padded = replace(fitted, problem=copy.copy(fitted.problem))
    object.__setattr__(padded.problem, "data", data)
    (ax,) = padded.plot_predictions(y + np.zeros((20, 1, 1)), "y", x="time").axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time", "y")
    assert ax.get_ylim()[1] < 100
    with pytest.raises(ValueError, match="no column 'days'; they have y, mask, time"):
        padded.plot_predictions(y[None], "y", x="days")
    with pytest.raises(ValueError, match="The predictions are 2 arrays"):
        padded.plot_predictions({"y": y, "z": y})


def test_arviz_has_latents_by_group(fitted, tmp_path):
    pytest.importorskip("arviz")
    found = fitted.to_arviz()
    assert found.posterior["latent"].dims == ("chain", "draw", "group")
    assert found.posterior.attrs["inference_library"] == "marginax"
    np.testing.assert_allclose(found.constant_data["theta_m"], float(fitted.theta["m"]))
    found.to_netcdf(str(tmp_path / "posterior.nc"))


def test_observations_are_counted_if_given(fitted):
    counted = dataclasses.replace(fitted, problem=problem(num_observations=60))
    assert "n = 60 observations" in str(counted)
    np.testing.assert_allclose(counted.bic - fitted.bic, 2 * np.log(60 / GROUPS))


@pytest.mark.slow
def test_correlations_are_shown_not_cholesky_factors():
    factor = jnp.linalg.cholesky(jnp.array([[1.0, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 1.0]]))
    model = mx.Problem(
        lambda theta, x, y: -0.5 * jnp.sum(x**2) + jnp.sum(theta["L"]) + theta["m"],
        theta={"L": factor, "m": 0.0},
        latent=jnp.zeros(2),
        theta_transforms={"L": correlation_cholesky(3)},
    )
    assert parameter_table.parameter_names(model) == ("L[1,0]", "L[2,0]", "L[2,1]", "m")
    assert parameter_table.unconstrained_names(model) == parameter_table.parameter_names(model)
    shown = np.asarray(parameter_table.displayed(model, model.start_theta()))
    np.testing.assert_allclose(shown, [0.5, 0.2, -0.3, 0.0], atol=1e-6)
    table = parameter_table.intervals(model, shown, np.full(4, 0.4), 1.96)
    assert np.all(np.abs(table[:3]) < 1)
    np.testing.assert_allclose(table[3], [-0.784, 0.784])
    # Fisher's z: atanh r +- 1.96 se / (1 - r^2)
    expected = np.tanh(np.arctanh(0.5) + np.array([-1, 1]) * 1.96 * 0.4 / 0.75)
    np.testing.assert_allclose(table[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "words"), [(150, "curvature in one block"), (160, "coordinate by"), (1200, "MPGD")]
)
def test_the_method_follows_the_size(size, words):
    model = mx.Problem(
        lambda theta, x, y: -0.5 * jnp.sum((x - theta) ** 2), theta=0.0, latent=jnp.zeros(size)
    )
    choice = make_plan(model)
    assert words in choice.words
    assert (choice.then is not None) == (words == "MPGD")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_a_latent_of_many_dimensions_falls_back_to_a_sampler(monkeypatch):
    """Latents in one large block without sparse curvature: MPGD, then Newton steps from draws."""
    limits = ["fitting.plan.LARGEST_STEIN", "model.structure.LARGEST_DENSE"]
    limits += [f"likelihood.{name}.MOST_LATENTS" for name in ("methods", "from_draws", "posterior")]
    for name in limits:
        monkeypatch.setattr(f"marginax.{name}", 155)  # 1,000 take minutes
    monkeypatch.setattr("marginax.likelihood.posterior.LONGEST", 120)
    y = jnp.asarray(1 + np.sqrt(2) * np.random.default_rng(0).normal(size=160))

    def log_joint(theta, x, y):
        # All latents meet, though by too little to matter: the marginal is that without it.
        prior = jnp.sum(norm.logpdf(x, theta["m"], theta["s"]))
        return prior + jnp.sum(norm.logpdf(y, x, 1.0)) - 1e-12 * jnp.sum(x) ** 2

    model = mx.Problem(
        log_joint,
        theta={"m": 0.0, "s": 1.0},
        latent=jnp.zeros(160),
        data=y,
        theta_transforms={"s": positive},
    )
    fit = mx.fit(model, key=jax.random.key(0), num_starts=1, max_steps=200)
    assert "MPGD" in fit.method
    assert any("from posterior draws" in note for note in fit.notes)
    exact = np.array([y.mean(), np.sqrt(y.var() - 1)])
    assert np.all(np.abs(fit.estimates - exact) < 0.2 * fit.standard_errors)
    assert np.all(fit.monte_carlo_error < 0.15 * fit.standard_errors)
    np.testing.assert_allclose(fit.standard_errors[0], np.sqrt(y.var() / 160), rtol=0.1)
    with pytest.raises(ValueError, match="no likelihood"):
        print(fit.log_likelihood)


def test_expert_knobs_are_checked():
    with pytest.raises(ValueError, match="not both"):
        mx.fit(
            problem(),
            key=jax.random.key(0),
            algorithm=make_plan(problem()).algorithm,
            kernel=mx.kernels.rbf(1.0),
        )
    with pytest.raises(ValueError, match="at least one start"):
        mx.fit(problem(), key=jax.random.key(0), num_starts=0)
