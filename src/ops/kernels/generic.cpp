// The kernels compiled for the compiler's baseline; src/ops/CMakeLists.txt sets the flags.
#include "ops/kernels/table.h"

namespace trifold::cpu {

constinit const KernelTable kKernelsGeneric = make_table("generic");

}  // namespace trifold::cpu
