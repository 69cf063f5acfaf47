"""Line, branch and toggle coverage of the exported tops: counts, proofs, waivers, a report."""
