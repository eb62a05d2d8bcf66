// Four pipelined multipliers and a sum: input of logic synthesis.
module multiplier(input clk, input [95:0] a, input [95:0] b, output reg [47:0] sum);
  reg [47:0] p0, p1, p2, p3;
  always @(posedge clk) begin
    p0 <= a[23:0] * b[23:0];
    p1 <= a[47:24] * b[47:24];
    p2 <= a[71:48] * b[71:48];
    p3 <= a[95:72] * b[95:72];
    sum <= p0 + p1 + p2 + p3;
  end
endmodule
