#pragma once
#include <string>

#include "client/cli/views.h"

namespace gpumem::cli {

/// What happened, when, to whom, in one line of plain words.
std::string event_line(const v1::Event& event);

/// The same for programs: one line of JSON. What an event has nothing of is null.
std::string event_json_line(const v1::Event& event);

}  // namespace gpumem::cli
