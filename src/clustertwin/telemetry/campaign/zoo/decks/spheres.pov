// POV-Ray: a grid of glass and metal spheres.
global_settings { max_trace_level 8 assumed_gamma 1.0 }
camera { location <6, 5, -9> look_at <0, 0, 0> }
light_source { <20, 30, -20> color rgb 1 area_light <3, 0, 0>, <0, 0, 3>, 4, 4 adaptive 1 }
plane { y, -2 pigment { checker color rgb 0.2, color rgb 0.9 } finish { reflection 0.2 } }
#declare i = -3;
#while (i <= 3)
  #declare j = -3;
  #while (j <= 3)
    sphere { <i, 0.3 * sin(i * j), j>, 0.45
      #if (mod(abs(i + j), 2) = 0) pigment { color rgbf <0.9, 0.9, 1, 0.9> } interior { ior 1.5 }
      #else pigment { color rgb <0.8, 0.4, 0.2> } finish { reflection 0.5 phong 1 } #end
    }
    #declare j = j + 1;
  #end
  #declare i = i + 1;
#end
