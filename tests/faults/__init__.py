"""What Redrive must live through: kills, pauses, cuts, lies and shortages."""
