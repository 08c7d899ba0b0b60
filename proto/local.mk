# proto
