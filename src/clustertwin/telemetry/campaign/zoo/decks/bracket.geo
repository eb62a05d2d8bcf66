// A block with nine holes, meshed with tetrahedra.
SetFactory("OpenCASCADE");
Box(1) = {0, 0, 0, 3, 3, 1};
For i In {0:2}
  For j In {0:2}
    Cylinder(10 + 3 * i + j) = {0.5 + i, 0.5 + j, 0, 0, 0, 1, 0.3};
  EndFor
EndFor
BooleanDifference{ Volume{1}; Delete; }{ Volume{10:18}; Delete; }
Mesh.CharacteristicLengthMin = 0.035;
Mesh.CharacteristicLengthMax = 0.035;
Mesh.Optimize = 1;
