#pragma once
#include <pthread.h>

#include <cstddef>
#include <functional>
#include <string>

#include "gpumem/result.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {

/// Maps `name`, a file of `size` bytes in the machine's data folder, for reading and writing. If it is not
/// there it is made first, zero but for what `fill` writes; of several makers one wins, and nobody sees it
/// unfilled. The caller unmaps it. Errors  kInternal: the system refused, or the file is of another size.
Result<void*> map_shared_file(const Machine& machine, const std::string& name, std::size_t size,
                              const std::function<void(void*)>& fill);

/// Makes `mutex`, which lies in such a file, usable by all processes, also after one that died holding it.
void init_shared_mutex(pthread_mutex_t& mutex);

}  // namespace gpumem::sim
