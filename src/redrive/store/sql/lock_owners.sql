-- lock_owners: those who own the installation and can sign in. Whoever takes one away holds all of them, in one order:
-- two at once must not take away the last two.
SELECT id FROM redrive.user_account WHERE is_owner AND disabled_at IS NULL ORDER BY id FOR NO KEY UPDATE;
