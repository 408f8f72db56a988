// The kernels compiled for x86-64-v3; src/ops/CMakeLists.txt sets the flags.
#include "ops/kernels/table.h"

namespace trifold::cpu {

constinit const KernelTable kKernelsV3 = make_table("x86-64-v3");

}  // namespace trifold::cpu
