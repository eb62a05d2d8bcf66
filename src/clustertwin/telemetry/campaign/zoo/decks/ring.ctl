; Light in a ring resonator, two dimensions: a pulse rings down, and its modes are found.
(set! geometry-lattice (make lattice (size 16 16 no-size)))
(set! geometry (list
  (make cylinder (center 0 0) (height infinity) (radius 3) (material (make dielectric (index 3.4))))
  (make cylinder (center 0 0) (height infinity) (radius 2) (material air))))
(set! pml-layers (list (make pml (thickness 2))))
(set! resolution 20)
(set! sources (list
  (make source (src (make gaussian-src (frequency 0.15) (fwidth 0.1))) (component Ez) (center 2.6 0))))
(run-sources+ 100 (after-sources (harminv Ez (vector3 2.6 0) 0.15 0.1)))
