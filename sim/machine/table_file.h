#pragma once
#include <functional>
#include <string>

#include "gpumem/result.h"
#include "sim/machine/extent_file.h"
#include "sim/machine/machine.h"
#include "sim/machine/table_layout.h"

namespace gpumem::sim {

/// Maps the machine's table, making the file first if it is not there; of several makers one wins. The caller
/// unmaps it. Errors  kInternal: the system refused, or the file is of another version.
Result<layout::Table*> map_table(const Machine& machine);

/// Removes the extent files in `folder` for which `is_kept` is false.
void remove_files_unless(const std::string& folder, const std::function<bool(SlotRef)>& is_kept);

}  // namespace gpumem::sim
