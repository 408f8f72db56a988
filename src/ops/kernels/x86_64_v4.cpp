// The kernels compiled for x86-64-v4; src/ops/CMakeLists.txt sets the flags.
#include "ops/kernels/table.h"

namespace trifold::cpu {

constinit const KernelTable kKernelsV4 = make_table("x86-64-v4");

}  // namespace trifold::cpu
