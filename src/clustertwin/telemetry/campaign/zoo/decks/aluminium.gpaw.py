"""GPAW: plane waves, bulk aluminium with a vacancy."""

from ase.build import bulk
from gpaw import GPAW, PW

atoms = bulk("Al", cubic=True).repeat((2, 1, 1))
del atoms[0]
atoms.calc = GPAW(mode=PW(250), kpts=(3, 3, 3), xc="PBE", txt="-", symmetry="off", convergence={"energy": 1e-5})
atoms.get_potential_energy()
