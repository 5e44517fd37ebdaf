"""The toy model, the methods and a short way to `run`, shared by the tests of the loop."""

import jax

import marginax as mx

TOY = mx.models.ToyHierarchical(12.0, 12.0)
Y = TOY.simulate(jax.random.key(0), 10.0, 20)
X = jax.random.normal(jax.random.key(1), (20, 20))
KERNEL = mx.kernels.rbf(5.0)
NEVER = mx.stopping.never()
METHODS = {
    "svgd_em": lambda h: mx.svgd_em(TOY.log_joint, h, h, KERNEL),
    "m_svgd_em": lambda h: mx.m_svgd_em(TOY.log_joint, h, h, KERNEL),
    "pgd": lambda h: mx.pgd(TOY.log_joint, h, h),
    "mpgd": lambda h: mx.mpgd(TOY.log_joint, h, 1.0, 10.0),
}


def run(method=None, theta=0.0, particles=X, data=Y, **more):
    method = METHODS["m_svgd_em"](0.3) if method is None else method
    more = {"max_steps": 4000} | more
    return mx.run(method, theta, particles, data, key=jax.random.key(2), **more)
