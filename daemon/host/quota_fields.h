#pragma once
#include <vector>

#include "daemon/host/quota_config.h"
#include "daemon/host/toml_reader.h"

namespace gpumem::host {

/// The fields of a table that gives quotas on every device, with `device` for other ones on some.
std::vector<TomlReader::Field> quotas_fields(TomlReader& reader, QuotasConfig& quotas);

}  // namespace gpumem::host
