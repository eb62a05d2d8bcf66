# Write a lid-driven cavity for icoFoam: a square of 160 by 160 cells, one moving wall, $1 parts.
mkdir -p 0 constant system
header() { printf 'FoamFile { version 2.0; format ascii; class %s; object %s; }\n' "$1" "$2"; }
{
  header dictionary blockMeshDict
  cat <<'MESH'
scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (160 160 1) simpleGrading (1 1 1));
boundary
(
  lid { type wall; faces ((3 7 6 2)); }
  walls { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); }
  frontAndBack { type empty; faces ((0 3 2 1) (4 5 6 7)); }
);
MESH
} >system/blockMeshDict
{
  header dictionary controlDict
  cat <<'CONTROL'
application icoFoam;
startFrom startTime; startTime 0; stopAt endTime; endTime 0.1; deltaT 0.0005;
writeControl timeStep; writeInterval 100; purgeWrite 1; writeFormat binary; writePrecision 8;
timeFormat general; timePrecision 6;
CONTROL
} >system/controlDict
{
  header dictionary fvSchemes
  cat <<'SCHEMES'
ddtSchemes { default Euler; }
gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; }
snGradSchemes { default orthogonal; }
SCHEMES
} >system/fvSchemes
{
  header dictionary fvSolution
  cat <<'SOLUTION'
solvers
{
  p { solver PCG; preconditioner DIC; tolerance 1e-06; relTol 0.05; }
  pFinal { $p; relTol 0; }
  U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-05; relTol 0; }
}
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
SOLUTION
} >system/fvSolution
{
  header dictionary decomposeParDict
  echo "numberOfSubdomains $1; method simple; simpleCoeffs { n ($1 1 1); delta 0.001; }"
} >system/decomposeParDict
{
  header dictionary transportProperties
  echo 'nu [0 2 -1 0 0 0 0] 0.01;'
} >constant/transportProperties
{
  header volScalarField p
  cat <<'PRESSURE'
dimensions [0 2 -2 0 0 0 0];
internalField uniform 0;
boundaryField { lid { type zeroGradient; } walls { type zeroGradient; } frontAndBack { type empty; } }
PRESSURE
} >0/p
{
  header volVectorField U
  cat <<'VELOCITY'
dimensions [0 1 -1 0 0 0 0];
internalField uniform (0 0 0);
boundaryField
{
  lid { type fixedValue; value uniform (1 0 0); }
  walls { type noSlip; }
  frontAndBack { type empty; }
}
VELOCITY
} >0/U
