"""The five terms of the Var-JEPA loss (Eq. VarJEPA-Loss) and the weights in front of them.

Terms are pure functions of distributions and data; weights are applied in one place,
:func:`weighted_loss`. With unit weights the loss is exactly −ELBO.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from varjepa.variational.gaussian import DiagonalGaussian


@dataclass(frozen=True, slots=True)
class ElboTerms:
    """One value per row for each term, all to be minimised."""

    rec: Tensor
    """L^rec = −log p(x | s_x)"""
    gen: Tensor
    """L^gen = −log p(y | s_y)"""
    kl_sx: Tensor
    """KL(q(s_x | x) ‖ N(0, I))"""
    kl_z: Tensor
    """KL(q(z | s_x) ‖ N(0, I))"""
    kl_sy: Tensor
    """KL(q(s_y | s_x, z, y) ‖ p(s_y | s_x, z))"""


@dataclass(frozen=True, slots=True)
class ElboWeights:
    """The α of Eq. (VarJEPA-Loss). All ones: the exact negative ELBO."""

    rec: float = 1.0
    """α^rec"""
    gen: float = 1.0
    """α^gen"""
    kl_sx: float = 1.0
    """α^KL of s_x"""
    kl_z: float = 1.0
    """α^KL of z"""
    kl_sy: float = 1.0
    """α^KL of s_y"""


@dataclass(frozen=True, slots=True)
class KlSyParts:
    """The two halves of the third KL: kl_sy = −(prediction + entropy)."""

    prediction: Tensor
    """(a) E_q[log p(s_y | s_x, z)]: how well context and z forecast the target latent"""
    entropy: Tensor
    """(b) −E_q[log q(s_y | s_x, z, y)]: keeps the target posterior from becoming a point"""


def elbo_terms(
    log_p_x: Tensor,
    log_p_y: Tensor,
    q_s_x: DiagonalGaussian,
    q_z: DiagonalGaussian,
    q_s_y: DiagonalGaussian,
    p_s_y: DiagonalGaussian,
) -> ElboTerms:
    """The simulation's terms, from the likelihoods at one sample and the closed-form divergences.

    Those of tables are means over features whose cells are known; ``VarTJepa.terms`` has them
    (``models/var_t_jepa.py``).
    """
    return ElboTerms(
        rec=-log_p_x,
        gen=-log_p_y,
        kl_sx=q_s_x.kl_to_standard(),
        kl_z=q_z.kl_to_standard(),
        kl_sy=q_s_y.kl_to(p_s_y),
    )


def split_kl_sy(q_s_y: DiagonalGaussian, p_s_y: DiagonalGaussian) -> KlSyParts:
    """Read (a) prediction and (b) entropy of −KL_sy separately."""
    return KlSyParts(prediction=q_s_y.expected_log_prob(p_s_y), entropy=q_s_y.entropy())


def weighted_loss(terms: ElboTerms, weights: ElboWeights) -> Tensor:
    """Σ α · term, per row. A term of weight 0 leaves the graph, so it costs no backward pass."""
    kept = [
        getattr(weights, field.name) * getattr(terms, field.name)
        for field in fields(ElboWeights)
        if getattr(weights, field.name) != 0.0
    ]
    if not kept:
        raise ValueError("every ELBO weight is 0: there is nothing to minimise")
    return sum(kept[1:], start=kept[0])
