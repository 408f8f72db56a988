// The page of `trifold report`: one HTML document without scripts or references, which a browser shows without a
// network. Text from logs is escaped.
#pragma once

#include <string>
#include <vector>

#include "monitor/report/run_log.h"

namespace trifold {

// Several runs are drawn in the same charts and listed side by side. The first line is "<!doctype html>".
std::string report_page(const std::vector<RunLog>& runs);

}  // namespace trifold
