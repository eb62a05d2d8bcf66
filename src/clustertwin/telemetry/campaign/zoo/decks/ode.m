% Octave: stiff systems with an interpreter's loops, and dense algebra.
rand ("seed", 1);
for k = 1:40
  a = rand (300);
  [q, r] = qr (a);
  s = svd (a);
  x = 1;
  for i = 1:20000
    x = x + 0.001 * (sin (x) - x);
  end
end
