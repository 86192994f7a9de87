-- Holds the place of a migration of another branch; goes when that is merged.
SELECT 1;
