#pragma once
#include <string>

#include "client/cli/views.h"

namespace gpumem::cli {

/// An event in one line of words: time, subject, effect.
std::string event_line(const v1::Event& event);

/// An event in one line of JSON, for programs. A field that the event does not have is null.
std::string event_json_line(const v1::Event& event);

}  // namespace gpumem::cli
