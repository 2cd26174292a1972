#pragma once
#include "client/cli/top/rows.h"
#include "client/cli/views/views.h"
#include "client/cli/web/timeline.h"

namespace gpumem::cli::web {

/// What the page shows of a sample. All text of others is printable ASCII. The first rows alone are told,
/// and how many there are.
Json sample_json(const top::Picture& picture, const top::Moment& now);

/// The point of a timeline.
Timeline::Point point_of(const top::Picture& picture, const top::Moment& now);

/// An event, with its words as `gpumem events` has them. `devices`  UUIDs, by their places.
Json event_json(const v1::Event& event, const std::vector<std::string>& devices);

}  // namespace gpumem::cli::web
