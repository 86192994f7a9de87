-- tail_secret: what channels of watchers are named by. Of the installation's row the engine alone reads this.
SELECT coalesce(i.seal_check, '') || uuid_send(i.id) AS secret FROM redrive.installation i;
