"""A Var-JEPA in which everything is linear and Gaussian, so that log p(x, y) is exact."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from varjepa.variational.gaussian import DiagonalGaussian


class LinearGaussianJepa:
    """x = W s_x + σ ε,  s_y = B s_x + C z + τ ε,  y = V s_y + σ ε.

    The posteriors are deliberately imperfect linear guesses: a bound that is tight proves little.
    """

    d = 2
    d_z = 1
    d_obs = 3

    def __init__(self, seed: int, posterior_gain: float = 0.3) -> None:
        g = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=g, dtype=torch.float64)

        self.W, self.V = matrix(self.d_obs, self.d), matrix(self.d_obs, self.d)
        self.B, self.C = matrix(self.d, self.d), matrix(self.d, self.d_z)
        self.sigma, self.tau = 0.7, 0.5
        self.E_x = posterior_gain * matrix(self.d, self.d_obs)
        self.E_z = posterior_gain * matrix(self.d_z, self.d)
        self.E_y = posterior_gain * matrix(self.d, self.d_obs)

    def q_s_x(self, x: Tensor) -> DiagonalGaussian:
        return _around(x @ self.E_x.T, 0.6)

    def q_z(self, s_x: Tensor) -> DiagonalGaussian:
        return _around(s_x @ self.E_z.T, 0.9)

    def q_s_y(self, s_x: Tensor, z: Tensor, y: Tensor) -> DiagonalGaussian:
        return _around(0.5 * self.p_s_y(s_x, z).mean + y @ self.E_y.T, 0.5)

    def p_s_y(self, s_x: Tensor, z: Tensor) -> DiagonalGaussian:
        return _around(s_x @ self.B.T + z @ self.C.T, self.tau)

    def p_x(self, s_x: Tensor) -> DiagonalGaussian:
        return _around(s_x @ self.W.T, self.sigma)

    def p_y(self, s_y: Tensor) -> DiagonalGaussian:
        return _around(s_y @ self.V.T, self.sigma)

    def _joint(self) -> MultivariateNormal:
        eye = torch.eye(self.d_obs, dtype=torch.float64)
        cov_s_y = self.B @ self.B.T + self.C @ self.C.T + self.tau**2 * torch.eye(self.d)
        cov_x = self.W @ self.W.T + self.sigma**2 * eye
        cov_y = self.V @ cov_s_y @ self.V.T + self.sigma**2 * eye
        cross = self.W @ self.B.T @ self.V.T
        cov = torch.cat([torch.cat([cov_x, cross], 1), torch.cat([cross.T, cov_y], 1)])
        return MultivariateNormal(torch.zeros(2 * self.d_obs, dtype=torch.float64), cov)

    def log_p(self, x: Tensor, y: Tensor) -> Tensor:
        """The exact marginal log-likelihood per row."""
        return self._joint().log_prob(torch.cat([x, y], -1))

    def sample(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Data from the model itself."""

        def normal(columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

        s_x, z = normal(self.d), normal(self.d_z)
        s_y = self.p_s_y(s_x, z).at_noise(normal(self.d))
        return self.p_x(s_x).at_noise(normal(self.d_obs)), self.p_y(s_y).at_noise(
            normal(self.d_obs)
        )


def _around(mean: Tensor, std: float) -> DiagonalGaussian:
    return DiagonalGaussian(mean, torch.full_like(mean, 2 * torch.tensor(std).log().item()))
