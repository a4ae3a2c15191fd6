"""Derives the polynomial of ``cf_erfc`` in engine/src/vector.c.

With t = 1 / (1 + z / 2) the function log(erfc(z) * exp(z^2) / t) is smooth on z in [0, 9.5]; a polynomial
in t fitted at Chebyshev nodes gives erfc with a nearly constant relative error. This prints the
coefficients and that error:

    python tools/fit_erfc.py
"""

import numpy as np
from scipy.special import erfc, erfcx

DEGREE = 10
Z_MAX = 9.5


def main() -> None:
    """Print the coefficients, constant term first, and the largest relative error in float64."""
    t_low = 1.0 / (1.0 + Z_MAX / 2.0)
    nodes = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    t = t_low + (1.0 - t_low) * (nodes + 1.0) / 2.0
    z = 2.0 / t - 2.0
    series = np.polynomial.Chebyshev.fit(t, np.log(erfcx(z) / t), DEGREE, domain=[t_low, 1.0])
    coefficients = series.convert(kind=np.polynomial.Polynomial, domain=[-1, 1]).coef
    grid = np.linspace(0.0, Z_MAX, 100_001)
    grid_t = 1.0 / (1.0 + grid / 2.0)
    fitted = grid_t * np.exp(np.polynomial.polynomial.polyval(grid_t, coefficients) - grid**2)
    for coefficient in coefficients:
        print(f"{coefficient:.9e}f")
    print("largest relative error:", float(np.max(np.abs(fitted / erfc(grid) - 1.0))))


if __name__ == "__main__":
    main()
