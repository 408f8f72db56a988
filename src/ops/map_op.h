// The functions that OpTable::map applies (ops/strided.h). No function here has a body, because the kernels of every
// instruction set include this header.
//
// To add one: add an enumerator here, and its formula with a line of MapList in ops/kernels/map_formulas.h. Checks, counts
// and the kernels of all back ends follow from these. ops_map_test.cpp compares every function with a second
// definition, and fails until the function has one.
#pragma once

#include <cstdint>

namespace trifold {

// Functions of the inputs x0, x1, x2 and the constants a, b. Results of comparisons are 1 or 0. Relu, Clamp, Minimum and
// Maximum of a NaN are NaN.
enum class MapOp : uint8_t {
  // ---- of one input x ----
  Identity,    // x
  Linear,      // a x + b
  Neg,         // -x
  Abs,         // |x|
  Log,         // log(x)
  Log1p,       // log(1 + x)
  Exp,         // exp(x)
  Sqrt,        // sqrt(x)
  Rsqrt,       // 1 / sqrt(x)
  Reciprocal,  // 1 / x
  Square,      // x^2
  Cos,         // cos(x)
  Sin,         // sin(x)
  Erf,         // erf(x)
  Tanh,        // tanh(x)
  Sigmoid,     // 1 / (1 + exp(-x))
  Relu,        // max(x, 0)
  Silu,        // x / (1 + exp(-x))
  Gelu,        // OpTable::gelu
  GeluErf,     // OpTable::gelu_erf
  Power,       // x^a
  Clamp,       // min(max(x, a), b); a and b may be infinite
  IsZero,      // whether x = 0
  // ---- gradients: dy times the derivative, given dy and the function's input x or result y ----
  AbsGrad,         // (dy, x); 0 at 0
  LogGrad,         // (dy, x)
  Log1pGrad,       // (dy, x)
  ExpGrad,         // (dy, y)
  SqrtGrad,        // (dy, y)
  RsqrtGrad,       // (dy, y)
  ReciprocalGrad,  // (dy, y)
  SquareGrad,      // (dy, x)
  CosGrad,         // (dy, x)
  SinGrad,         // (dy, x)
  ErfGrad,         // (dy, x)
  TanhGrad,        // (dy, y)
  SigmoidGrad,     // (dy, y)
  ReluGrad,        // (dy, y); 0 at 0
  SiluGrad,        // (dy, x)
  GeluGrad,        // (dy, x)
  GeluErfGrad,     // (dy, x)
  PowerGrad,       // (dy, x): a x^(a - 1) dy; 0 if a is 0
  ClampGrad,       // (dy, x): dy where a < x < b, else 0
  // ---- of two inputs ----
  Add,           // x0 + a x1
  Mul,           // x0 x1
  Div,           // x0 / x1
  Minimum,       // the smaller of x0 and x1
  Maximum,       // the larger of x0 and x1
  Equal,         // whether x0 = x1
  NotEqual,      // whether x0 and x1 differ
  Less,          // whether x0 < x1
  LessEqual,     // whether x0 <= x1
  Greater,       // whether x0 > x1
  GreaterEqual,  // whether x0 >= x1
  Select,        // x1 where x0 is not 0, else a
  SelectNot,     // a where x0 is not 0, else x1
  // ---- of three inputs ----
  Where,        // x1 where x0 is not 0, else x2
  DivGrad,      // (dy, y, x1): the gradient of x1 in y = x0 / x1: -dy y / x1
  MinimumGrad,  // (dy, x0, x1): the gradient of x0: dy where x0 < x1, half of it where they are equal, else 0
  MaximumGrad,  // (dy, x0, x1): the gradient of x0: dy where x0 > x1, half of it where they are equal, else 0
};

// The number of functions.
constexpr int kMapOps = static_cast<int>(MapOp::MaximumGrad) + 1;

}  // namespace trifold
