"""The fit of a linear mixed model: its maximum, what follows from that, and in which words."""

import numpy as np

from marginax.formulas.covariances import Layout
from marginax.formulas.design import Design
from marginax.formulas.linear_inference import Inference
from marginax.formulas.linear_maximum import maximum_of
from marginax.formulas.linear_products import linear_model
from marginax.formulas.linear_profiles import Profiles
from marginax.formulas.random_terms import Group
from marginax.formulas.solution import Number, Solution

__all__ = ["boundary_notes", "fit_linear", "layout_of"]

NOT_SETTLED = (
    "The climb did not come to rest: the estimate may be a little off. Rescale columns of very "
    "different size, or take random effects out."
)


def fit_linear(design: Design, reml: bool) -> Solution:
    """Maximum likelihood, or restricted maximum likelihood, of a linear mixed model."""
    columns = design.columns
    response = design.response.values - columns.offset
    _check_response(design, response)
    model = linear_model(response, columns.fixed, columns.groups, design.weights)
    if model.unit <= 1e-12 * float(np.max(np.abs(response), initial=0.0)):
        raise ValueError(
            f"The fixed effects explain {design.response.name!r} without a rest: there is nothing "
            "left for random effects. Take some of them out."
        )
    layout = layout_of(columns.groups).reordered(model.order)
    top = maximum_of(model, layout, reml)
    inference = Inference(model, layout, top, reml, _back(model.order))
    return _solution(inference, design, response)


def layout_of(groups: tuple[Group, ...]) -> Layout:
    """Which numbers the covariances of groups have."""
    return Layout(tuple((group.name, group.effects, group.blocks) for group in groups))


def _check_response(design: Design, response: np.ndarray) -> None:
    name, groups = design.response.name, design.columns.groups
    if np.ptp(response) == 0:
        raise ValueError(
            f"The response {name!r} is {response[0]:g} in every row: nothing varies that could be "
            "explained."
        )
    for group in groups:
        size = len(group.effects)
        if group.num_levels * size >= len(response):
            raise ValueError(
                f"The group {group.name!r} has {group.num_levels} levels with {size} "
                f"effect{'s' * (size > 1)} each and there are {len(response)} rows: the effects "
                "cannot be told from the residual. Take effects out, or use another group."
            )


def _back(order: tuple[int, ...]) -> list[int]:
    """Where each group of the design is in the model."""
    return [order.index(i) for i in range(len(order))]


def _solution(inference: Inference, design: Design, response: np.ndarray) -> Solution:
    """All of it, in the design's order of groups."""
    beta, covariance = inference.fixed()
    numbers = inference.numbers(inference.covariance_of_phi())
    in_order = _in_order(numbers, design.columns.groups)
    covariances = inference.covariances()
    border = "" if inference.model.border is None else f" and {inference.model.border.words}"
    levels = inference.model.sizes[0][0]
    kind = "restricted likelihood" if inference.reml else "likelihood"
    return Solution(
        fixed=beta,
        fixed_covariance=covariance,
        covariances=tuple(covariances[i] for i in inference.back),
        dispersion={"sigma": np.array(inference.sigma)},
        numbers=tuple(in_order),
        num_parameters=len(beta) + len(in_order),
        log_likelihood=-0.5 * inference.top.profile.deviance(),
        error=0.0,
        method=f"exact {kind}: {levels:,} levels eliminated one by one{border}",
        effects=inference.effects,
        converged=inference.top.settled,
        warnings=() if inference.top.settled else (NOT_SETTLED,),
        notes=tuple(boundary_notes(in_order)),
        profile=Profiles(inference, design, response).interval,
        draw=inference.draw,
    )


def _in_order(numbers: list[Number], groups: tuple[Group, ...]) -> list[Number]:
    """The numbers by the groups of the design; the residual's last."""
    order = {group.name: i for i, group in enumerate(groups)}
    return sorted(numbers, key=lambda one: order[one.about.group] if one.about else len(order))


def boundary_notes(numbers: list[Number]) -> list[str]:
    """What is at a boundary, in sentences: a finding and no failure."""
    said = []
    for one in numbers:
        if one.about is None or one.standard_error is not None:
            continue
        if not one.about.is_correlation:
            said.append(
                f"{one.name} is 0: the data want no variance there. It has no standard error, the "
                "others' are with it fixed, and a likelihood-ratio test of it is conservative."
            )
        elif abs(one.estimate) > 0.999:
            said.append(
                f"{one.name} is {one.estimate:+.0f}, an end of its range: these effects are one. "
                "It has no standard error, and the others' are with it fixed."
            )
    return said
